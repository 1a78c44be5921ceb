// Package archtest owns the rules of who may import whom and of how large a type or
// a package may be, as tables that its tests enforce over every Go file of the
// module, whatever its build tags. It holds no code that runs in production.
//
// Invariant: every package of the module has exactly one row, and every row has
// a package.
package archtest
