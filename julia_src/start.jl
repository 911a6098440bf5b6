# Run by Python in a Julia that juliacall has just started: makes PyBridge loadable, from
# wherever Python found it, and loads it. Behind the active environment, where PyBridge's own
# dependencies are; before the user's global one, which must not shadow them.
insert!(LOAD_PATH, min(2, length(LOAD_PATH) + 1), @__DIR__)
import PyBridge

# An interrupt, which Python passes on, ends the call that is running and not the process.
Base.exit_on_sigint(false)
