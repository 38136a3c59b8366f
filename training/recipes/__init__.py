"""Tasks whose rewards a program can check, each a folder to copy and change."""
