// Package gomlxhooks is the only package that reaches into GoMLX behind its exported
// names: functions and variables linked by name, and private fields read by reflection.
//
// Each hook names the module, file and identifier that it depends on. TestHooks compares
// those declarations with the source of the module in go.mod, and fails with the name of
// a hook when an upgrade changes one. The versions tried are github.com/gomlx/compute
// v0.1.14, github.com/gomlx/gomlx v0.28.16 and github.com/gomlx/go-xla v0.4.13.
//
// The package owns no kernels and no policy: its callers decide which hooks to install and
// when.
//
// Invariant: a hook returns an error or false if GoMLX differs from its expectation. It never
// reads or writes memory of another type.
package gomlxhooks
