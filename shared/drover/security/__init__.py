"""Authentication and authorization: certificates, tokens, signatures, grants.

``certificates`` reads and reloads certificates, ``development_ca`` creates them for development,
``grants`` reads the access file, ``tokens`` verifies JSON Web Tokens, ``signatures`` signs calls
between workers.
"""
