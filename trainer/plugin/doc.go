// Package plugin owns the shared libraries through which XLA reaches a device: where
// they are found, which builds of them are trusted, how one is installed, and what it
// needs from the system. It loads none of them; package device does.
//
// A plugin is installed from the wheel that its makers publish in the Python package
// registry. A wheel is a zip archive, so neither Python nor pip is needed.
//
// Invariant: a plugin that Install leaves behind is whole, and comes from the wheel with
// the pinned SHA-256. Nothing is downloaded except by Install.
package plugin
