package packing

// Quantiles is for tests.
var Quantiles = quantiles
