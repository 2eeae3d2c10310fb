"""Long sequences: attention over tokens that are cut over ranks, three ways, each exact."""
