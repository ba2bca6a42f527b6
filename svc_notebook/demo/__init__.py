"""`svc-notebook demo` and `svc-notebook lab`: the notebooks, run on the emulator."""
