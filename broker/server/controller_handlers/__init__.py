"""One module per API of the controller's listeners, in alphabetical order: what stands here is offered there."""
