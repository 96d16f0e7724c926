"""The admin API's use cases: each validates its request, executes it and masks its response.

A use case takes a request and an ``AdminCall``, which has the principal and the deadline. The use
cases do not depend on the transport: ``drover_worker.adapters`` has an adapter for each.
"""
