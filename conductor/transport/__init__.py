"""Bytes in and out: our own stdio, a child's pipes, memory, behind one small interface."""
