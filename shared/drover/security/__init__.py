"""Who is at the other end, and what it may do: certificates, tokens, grants.

``certificates`` reads and renews what TLS needs, ``development_ca`` makes it for a trial,
``grants`` says who may do what, ``tokens`` knows callers by their bearer tokens, ``settings`` is
what a service is told of all of it.
"""
