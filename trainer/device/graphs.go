package device

import "temper/trainer/graphcache"

// Graphs counts the programs that XLA plugins have compiled and loaded in this process. What
// is compiled on a backend of Open is kept on disk and found there again, of whatever part
// of the tree; see trainer/graphcache.
func Graphs() graphcache.Counts { return graphcache.Now() }
