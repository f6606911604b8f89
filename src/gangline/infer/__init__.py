"""A published model behind KServe's own server: the one room that imports kserve.

    handler       what a request must look like, and batches of several requests
    batch_queue   the bounded queue, the one thread of the device, the swap of a model
    limits        refusals before a body is read: size, time, number, token
    served_model  kserve's `Model` on top of that queue
    server        start, ready, swap and drain; `python -m gangline.infer`
    smoke         measures a candidate and its base from outside: `caller` sends, `turns` is arithmetic

The process has no credentials: its parent verified the folder, and tells it on stdin about another one.
"""
