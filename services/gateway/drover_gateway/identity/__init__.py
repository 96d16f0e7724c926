"""Who makes a request, and from which web pages requests are accepted."""
