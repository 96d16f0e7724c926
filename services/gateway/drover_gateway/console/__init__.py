"""The console: pages for operators, rendered here, without a build step.

Read ``application`` first (what happens to a request), then ``sessions`` (who calls), ``rows``
(what is shown of a connector; pure) and ``live`` (updates of open pages). Each page has a module
named after it; ``frame`` has what is the same on all pages. Every action is a plain form:
``static/console.js`` makes pages faster and live, and nothing needs it.
"""
