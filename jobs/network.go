package jobs

import (
	"fmt"
)

// network says how the processes of a cluster reach each other.
type network struct {
	name string // of the cluster
	tls  bool
}

func networkOf(b Build) network { return network{b.Name, b.TLS} }

// address returns where a port listens: on the loopback address unless the cluster speaks TLS.
func (n network) address(port string) string {
	if n.tls {
		return "${NOMAD_IP_" + port + "}:${NOMAD_PORT_" + port + "}"
	}
	return local(port)
}

// local returns the address of a port on the loopback address.
func local(port string) string { return loopback + ":${NOMAD_PORT_" + port + "}" }

func (n network) scheme() string {
	if n.tls {
		return "https"
	}
	return "http"
}

// certificates returns the files that a role needs for TLS.
func (n network) certificates() map[string]string {
	if !n.tls {
		return map[string]string{}
	}
	return map[string]string{fileCert: ItemCert, fileKey: ItemKey, fileCA: ItemCA}
}

// serveTLS returns the flags of a server.
func (n network) serveTLS() []string {
	if !n.tls {
		return nil
	}
	return []string{"--tls-cert", secret(fileCert), "--tls-key", secret(fileKey), "--tls-client-ca", secret(fileCA)}
}

// clientTLS returns how a process calls a gateway with TLS.
func (n network) clientTLS() map[string]string {
	if !n.tls {
		return map[string]string{}
	}
	return map[string]string{"TEMPER_SANDBOX_TLS_CA": secret(fileCA), "TEMPER_SANDBOX_TLS_CERT": secret(fileCert), "TEMPER_SANDBOX_TLS_KEY": secret(fileKey)}
}

// PlacesKey is the variable of the environment that names the file with the addresses of servers. PlacesMissing begins
// the lines of that file that name servers without an address: Nomad reads them as comments.
const (
	PlacesKey     = "TEMPER_PLACES"
	PlacesMissing = "# missing: "
	filePlaces    = "places.env"
)

// lookup returns a template of a line KEY=value with the address of a role's service, or of a line that says that the
// service has no address now; a process waits for it. form is the value with .Address and .Port.
func (n network) lookup(key, role, form string) string {
	return fmt.Sprintf("{{ range nomadService %[1]q }}%[2]s=%[3]s\n{{ else }}%[4]s%[1]s\n{{ end }}", n.name+"-"+role, key, form, PlacesMissing)
}
