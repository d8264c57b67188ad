"""Commands about stepscope itself: its cache, its demo, its completion and its tools for agents."""
