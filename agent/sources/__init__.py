"""Where passages come from: one small class per source behind SearchTool."""
