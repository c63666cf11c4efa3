"""A trial on the cluster: placement, policies of scaling and failure, processes, the role group and its roles."""
