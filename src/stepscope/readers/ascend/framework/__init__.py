"""Raw FRAMEWORK files of torch_npu and MindSpore."""
