"""Plugins: proxies and agents that run in the conductor's process.

`plugin_component.PluginComponent` is one plugin in a chain; its two ports (`plugin_port`) forward
unhandled messages at once and queue the others in lanes (`lane`, pure). `scheduler.LaneScheduler`
has the worker tasks, `dispatch.Dispatcher` calls the handlers, `outgoing_messages` sends what the
plugin itself sends and has the handlers that wait for a response; `plugin_runtime` has the
functions that `Plugin` methods call. `failures` contains the exceptions of handlers. `loading` and
`file_imports` find and make the instance, `isolation` prepares a process for `isolate: true`.
"""
