"""One module per API of the broker's listeners, in alphabetical order: what stands here is offered to clients."""
