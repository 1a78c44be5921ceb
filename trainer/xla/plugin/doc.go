// Package plugin owns the shared libraries through which XLA reaches a device: where
// they are found, which builds of them are trusted, how one is installed, and which
// libraries of the system it needs. It does not load them; package device does.
//
// A plugin is installed from the wheel that its makers publish in the Python package
// registry. The user's pip downloads the wheel; this package unpacks it.
//
// Invariant: a plugin that Install leaves behind is whole, and comes from the wheel with
// the pinned SHA-256. Only Install downloads.
package plugin
