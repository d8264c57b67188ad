"""The server behind `stepscope view`: it finds runs, opens them, and hands out what the analyses say. It computes nothing itself."""
