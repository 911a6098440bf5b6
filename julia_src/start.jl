# Run by Python in the Julia that juliacall has started, or that Python was started in:
# makes PyBridge loadable, from wherever Python found it, loads it, and tells the addresses of
# what Python calls. Behind the active environment, where PyBridge's own dependencies are;
# before the user's global one, which must not shadow them.
insert!(LOAD_PATH, min(2, length(LOAD_PATH) + 1), @__DIR__)
import PyBridge
PyBridge.boundary()
