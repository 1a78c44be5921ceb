package role

// Names of the roles.
const (
	Postgres    = "postgres"
	Temporal    = "temporal"
	ObjectStore = "objectstore"
	Gateway     = "gateway"
	Sandbox     = "sandbox"
	Control     = "control"
	Trainer     = "trainer"
	Rollout     = "rollout"
	UI          = "ui"
	Metrics     = "metrics"
	Engine      = "engine"
	Host        = "host"
	Serve       = "serve"
)

// Programs that a role runs.
const (
	temper     = "temper"
	temporald  = "temporald"
	s3d        = "s3d"
	prometheus = "prometheus"
)

// Drivers of jobs: exec runs a program as an ordinary user, raw_exec with the rights of the
// Nomad agent.
const (
	exec    = "exec"
	rawExec = "raw_exec"
)

// command returns the arguments with which temper starts a role.
func command(name string) []string { return []string{"role", name} }

// health is the only port of a role without an API.
var health = Port{Label: PortHealth}

// table has one row for each role.
var table = []Row{
	{
		Name: Postgres, Does: "Keep the data of Temporal",
		Job: &Job{
			Count: 0, Driver: rawExec, Priority: 90, MHz: 500, Memory: 512 << 20, Single: true, Folder: "postgres",
			Ports: []Port{{PortAPI, "postgres", 5432}}, Serves: PortAPI, Check: CheckConnect, CheckPort: PortAPI,
		},
	},
	{
		Name: Temporal, Does: "Serve Temporal", Program: temporald,
		Job: &Job{
			Count: 1, Driver: exec, Priority: 90, MHz: 1000, Memory: 1 << 30, Single: true, Folder: "temporal.db",
			Ports: []Port{{PortAPI, "temporal", 7233}, {PortUI, "temporal_ui", 8233}}, Serves: PortAPI, Check: CheckConnect, CheckPort: PortAPI,
			Listed: true,
		},
	},
	{
		Name: ObjectStore, Does: "Serve objects by the API of S3", Program: s3d,
		Job: &Job{
			Count: 0, Driver: exec, Priority: 90, MHz: 500, Memory: 512 << 20, Single: true, Folder: "objects",
			Ports: []Port{{PortAPI, "objectstore", 9000}}, Serves: PortAPI, Check: CheckConnect, CheckPort: PortAPI, Listed: true,
		},
	},
	{
		Name: Gateway, Does: "Spread sandbox calls over nodes", Program: temper, Command: command(Gateway),
		Needs: []Need{NeedSandbox}, OwnListener: true,
		Job: &Job{
			Count: 1, Driver: exec, Priority: 70, MHz: 500, Memory: 1 << 30, Single: true, Required: "take calls for tools",
			Ports: []Port{{PortAPI, "gateway", 8766}}, Serves: PortAPI, Check: CheckHealth, CheckPort: PortAPI,
			Scraped: true, ScrapeToken: "sandbox_token", Listed: true,
		},
	},
	{
		Name: Sandbox, Does: "Run isolated Python programs", Program: temper, Command: command(Sandbox), OwnListener: true,
		Job: &Job{
			Count: 1, Driver: rawExec, Priority: 40, MHz: 2000, Memory: 4 << 30, Required: "run tools", Load: LoadSlots,
			Ports: []Port{{Label: PortAPI}}, Serves: PortAPI, Check: CheckHealth, CheckPort: PortAPI, Scraped: true, ScrapeToken: "node_token",
		},
	},
	{
		Name: Control, Does: "Serve workflows and bookkeeping", Program: temper, Command: command(Control),
		Needs: []Need{NeedTemporal, NeedStore},
		Job: &Job{
			Count: 1, Driver: exec, Priority: 80, MHz: 500, Memory: 512 << 20, Required: "serve workflows", Load: LoadBacklog,
			Ports: []Port{health}, Check: CheckHealth, CheckPort: PortHealth, Scraped: true,
		},
	},
	{
		Name: Trainer, Does: "Train policies on this machine's device", Program: temper, Command: command(Trainer),
		Needs: []Need{NeedTemporal, NeedStore, NeedDevice}, PerRun: true,
		Job: &Job{
			Count: 0, Driver: exec, Priority: 60, MHz: 2000, Memory: 4 << 30,
			Ports: []Port{health}, Check: CheckHealth, CheckPort: PortHealth, Scraped: true,
		},
	},
	{
		Name: Rollout, Does: "Sample and evaluate policies", Program: temper, Command: command(Rollout),
		Needs: []Need{NeedTemporal, NeedStore, NeedSandbox, NeedDevice}, PerRun: true,
		Job: &Job{
			Count: 0, Driver: exec, Priority: 50, MHz: 2000, Memory: 4 << 30,
			Ports: []Port{health}, Check: CheckHealth, CheckPort: PortHealth, Scraped: true,
		},
	},
	{
		Name: UI, Does: "Serve the dashboard", Program: temper, Command: command(UI), Needs: []Need{NeedTemporal, NeedStore},
		Job: &Job{
			Count: 0, Driver: exec, Priority: 30, MHz: 200, Memory: 512 << 20, Single: true,
			Ports: []Port{{PortUI, "ui", 8234}, health}, Serves: PortUI, Check: CheckHealth, CheckPort: PortHealth,
		},
	},
	{
		Name: Metrics, Does: "Collect the series of all roles", Program: prometheus,
		Job: &Job{
			Count: 0, Driver: exec, Priority: 30, MHz: 200, Memory: 512 << 20, Single: true, Folder: "prometheus",
			Ports: []Port{{PortAPI, "prometheus", 9090}}, Serves: PortAPI, Check: CheckConnect, CheckPort: PortAPI,
		},
	},
	{
		Name: Engine, Does: "Serve the policies of one run to rollout roles", Program: temper, Command: command(Engine),
		Needs: []Need{NeedStore, NeedDevice}, OwnListener: true, PerRun: true, Grows: true,
	},
	{
		Name: Host, Does: "Make a part of the passes of a trainer on another machine", Program: temper, Command: command(Host),
		Needs: []Need{NeedDevice, NeedTrainer},
	},
	{
		Name: Serve, Does: "Answer requests to a model with OpenAI's API", Program: temper, Command: []string{Serve},
		Needs: []Need{NeedDevice}, OwnListener: true,
	},
}
