// Package role owns the table of roles: what one process of the service is for, how it is started, what it must
// reach, and how a cluster runs it. It starts nothing and reads no configuration.
//
// Invariant: a role is one row of the table, and what a row says of it is written nowhere else.
package role

import "slices"

// Need is something that a role must reach to be of use.
type Need string

// The needs of roles.
const (
	NeedTemporal Need = "temporal"
	NeedStore    Need = "store"
	NeedSandbox  Need = "sandbox" // a node or a gateway
	NeedDevice   Need = "device"  // the backend for tensors
	NeedTrainer  Need = "trainer" // the trainer that a host makes passes for
)

// Load is the measured load by which a cluster scales a role.
type Load string

// The loads that are measured.
const (
	// LoadSlots counts calls: those that run and those that wait for a slot.
	LoadSlots Load = "slots"
	// LoadBacklog is the age of the oldest task of the role's queue.
	LoadBacklog Load = "backlog"
)

// Check is how a cluster asks whether an instance is well.
type Check string

// The checks.
const (
	// CheckHealth asks /healthz.
	CheckHealth Check = "health"
	// CheckConnect connects to the port.
	CheckConnect Check = "connect"
)

// Labels of ports.
const (
	PortAPI    = "api"    // where the role takes calls
	PortUI     = "ui"     // its page for browsers
	PortHealth = "health" // health and metrics alone
)

// Port is a port of a role's job.
type Port struct {
	Label string
	// Key is the key below ports in the cluster's file that sets its number; empty for a number that the
	// scheduler chooses.
	Key string
	// Number is the default of Key.
	Number int
}

// Row describes one role.
type Row struct {
	Name string
	// Does describes the role in one line for people.
	Does string
	// Program is the binary; empty for a program of the machine's own system.
	Program string
	// Command starts the role of Program: words before the flags.
	Command []string
	// Needs must be reachable for the role to be ready.
	Needs []Need
	// OwnListener says that the role answers for health and metrics on the address where it takes calls.
	OwnListener bool
	// PerRun says that a run may have a job of the role for itself; Grows says that such a job may have more
	// instances than the run needs while no other run waits.
	PerRun, Grows bool
	// Job is how a cluster runs the role for all runs; nil for a role without such a job.
	Job *Job
}

// Job describes the job of a role in a cluster.
type Job struct {
	// Count, Driver, Priority, MHz and Memory (bytes) are the defaults of the cluster's file.
	Count    int
	Driver   string
	Priority int
	MHz      int
	Memory   int64
	// Single means that one instance at most may run: it owns a folder or an address.
	Single bool
	// Required says what is not done without the role, as the end of "nothing would ..."; empty for a role that a
	// cluster may leave out.
	Required string
	// Load scales the role between its count and its max; empty for a fixed count.
	Load Load
	// Folder is the folder with the role's data, below the data folder of its node; empty
	// for none.
	Folder string
	Ports  []Port
	// Serves is the label of the port at which others find the role; empty when none calls it.
	Serves string
	// Check asks the port CheckPort.
	Check     Check
	CheckPort string
	// Scraped says that Prometheus reads the series of the role, with the token in the file ScrapeToken; empty
	// for none.
	Scraped     bool
	ScrapeToken string
	// Listed means that the status of a cluster shows the addresses of the role.
	Listed bool
}

// All returns the rows in the order in which a cluster starts their jobs; roles without one come last.
func All() []Row { return slices.Clone(table) }

// Jobs returns the rows that have a job for all runs.
func Jobs() []Row {
	return slices.DeleteFunc(All(), func(r Row) bool { return r.Job == nil })
}

// PerRun returns the names of the roles that a run may have for itself.
func PerRun() (names []string) {
	for _, r := range table {
		if r.PerRun {
			names = append(names, r.Name)
		}
	}
	return names
}

// Find returns the row of a name.
func Find(name string) (Row, bool) {
	i := slices.IndexFunc(table, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, false
	}
	return table[i], true
}

// Of returns the row of a name that the caller knows to exist, such as a constant of this package. It panics for any
// other.
func Of(name string) Row {
	r, ok := Find(name)
	if !ok {
		panic("role " + name + " has no row")
	}
	return r
}

// Arguments returns the command of the role followed by flags.
func (r Row) Arguments(flags ...string) []string { return slices.Concat(r.Command, flags) }
