"""Where operators keep what they must remember: indexes that change a part at the cost of that part."""
