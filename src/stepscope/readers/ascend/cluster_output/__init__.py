"""Cluster analysis folders of Ascend's tools."""
