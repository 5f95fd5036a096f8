"""What tests run with the interpreter of the lab's engine, which has the real SGLang 0.5.23 and torch, on CPUs."""
