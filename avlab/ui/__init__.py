"""What the dashboard's pages share. No torch, no SQL, no mathematics."""
