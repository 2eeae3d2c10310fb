"""Links that carry an axis instead of torch.distributed's own collectives, each chosen by its name.

    fast_gloo      gloo's collectives made of exchanges, or relayed by one rank   "fast-gloo"
    shared_memory  the memory of one host                                         "shared-memory"
    staged         GPU tensors over gloo, copied through the host's memory        "staged"

Each folder has a function `connect(world, ranks, existing_links)`. It returns an object with the
methods of `shardlab.comm.torch_link.TorchLink`, which an axis calls. `World.axis` imports the
folder by the link's name, so that no other room depends on this one.
"""
