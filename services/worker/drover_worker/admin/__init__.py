"""The admin API's use cases: each checks its request, does the work and masks its answer.

A use case takes a request, and an ``AdminCall`` that says who asks and until when. It is the same
whichever way the request came: ``drover_worker.adapters`` has one adapter for each way.
"""
