"""Other ways to carry an axis than torch.distributed as it comes, each chosen by its name.

    fast_gloo      gloo's collectives by exchange, or by way of one rank   "fast-gloo"
    shared_memory  the memory of one host                                  "shared-memory"
    staged         GPUs' tensors over gloo, through the host's memory      "staged"

Such a folder has a function `connect(world, ranks, beside)` that returns what an axis calls: the
methods of `shardlab.comm.torch_link.TorchLink`. `World.axis` finds the folder by the link's name,
so that nothing between a layer and torch.distributed imports what is in here.
"""
