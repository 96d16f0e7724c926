"""What every process of Drover tells Prometheus: figures, the table of their names, the endpoint.

Who measures keeps plain numbers (``Tally``, ``Distribution``); who knows some state offers a source
that reads it when it is asked. Nothing is made for Prometheus before it asks, and what is gone is
told no longer.
"""
