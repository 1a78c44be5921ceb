package archtest_test

// manyMethods are the types with more methods than maxMethods, each with its reason.
var manyMethods = map[string]string{
	"internal/blob/object.Store":            "the port with its optional parts, over the few calls that two SDKs share",
	"internal/chat/jinja.parser":            "a method for each rule of the grammar",
	"internal/placement/placementtest.Fake": "the port, and all that a test does to a cluster",
	"internal/chat/tokenizer.Tokenizer":     "a setter for each part of tokenizer.json, which the parser calls while it reads",
	"internal/answer.parser":                "a method for each rule of the grammar",
	"internal/answer.reals":                 "exact, complex and real arithmetic share one evaluation: a complex operation is made of real ones, and an evaluation of both",
	"internal/answer.complexes":             "the complex operations and the evaluation over them; see internal/answer.reals",
	"internal/run/replay.target":            "a step that was found, within the work of making it again, which reads all of it",
}

// manyFiles are the packages with more files than maxFiles, each with its reason.
var manyFiles = map[string]string{
	"cmd/temper":          "one file for each command",
	"internal/chat/jinja": "one language: lexer, grammar, values, and a file for each family of filters",
	"internal/config":     "one file for each section of a configuration, and the binder that fills them",
	"sandbox/jail":        "one jail: what a program may do, see and use is decided by parts that only work together",
	"ui":                  "one file for each kind of request in its table of routes",
	"workers":             "one file for each role, and for each thing that roles share",
	"workflows":           "one file for each workflow and each kind of message: the workflows start, signal and query each other",
}

// smallPackages are the packages of one short file, each with the cycle that a merge
// would make.
var smallPackages = map[string]string{
	"deploy/prometheus":      "go:embed takes files from its own folder or below, and Prometheus reads the rules here",
	"internal/archtest":      "it holds tests alone",
	"internal/blob/storeurl": "it opens the drivers, and each driver imports internal/blob",
	"internal/fault":         "every layer returns its kinds of errors, internal/blob included",
	"internal/proc/testbin":  "tests alone import it: internal/proc is linked into the product",
	"sandbox/status":         "sandbox and internal/rl share its words, and neither may import the other",
}
