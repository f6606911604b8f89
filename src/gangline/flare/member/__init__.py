"""What a member decides for itself: its settings, which code it approved, how much privacy it spent. No nvflare."""
