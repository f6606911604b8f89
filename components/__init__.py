"""Components of Kubeflow Pipelines, one a file: each calls one stage of the line and shows what it left."""
