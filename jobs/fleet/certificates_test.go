package fleet_test

import (
	"crypto/x509"
	"encoding/pem"
	"testing"

	"temper/jobs"
	"temper/jobs/fleet"
)

// TestCertificatesForWorkloads: a certificate holds for the addresses at which the processes of nodes are reached, which
// need not be that of the agent.
func TestCertificatesForWorkloads(t *testing.T) {
	w := newLone(t, smallCluster+"tls: true\n")
	n := w.node("two")
	n["Address"] = "10.0.0.2"
	resources := n["NodeResources"].(map[string]any)
	resources["Networks"] = []map[string]string{{"Device": "eth1", "IP": "192.168.7.2", "CIDR": "192.168.7.2/32"}}
	resources["NodeNetworks"] = []map[string]any{
		{"Device": "", "Addresses": nil},
		{"Device": "eth1", "Addresses": []map[string]string{{"Alias": "default", "Address": "192.168.7.2"}, {"Alias": "default", "Address": "fd00::2"}}},
		{"Device": "eth2", "Addresses": []map[string]string{{"Alias": "public", "Address": "203.0.113.2"}}},
	}
	var said []string
	if err := w.fleet("v1").Init(t.Context(), fleet.InitOptions{Say: func(s string) { said = append(said, s) }}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"gateway", "sandbox"} {
		items := w.vars["nomad/jobs/shop-"+role].Items
		roots := x509.NewCertPool()
		block, _ := pem.Decode([]byte(items[jobs.ItemCert]))
		if !roots.AppendCertsFromPEM([]byte(items[jobs.ItemCA])) || block == nil {
			t.Fatal("no certificates")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{"127.0.0.1", "10.0.0.2", "192.168.7.2", "fd00::2", "203.0.113.2"} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: address}); err != nil {
				t.Errorf("a client that reaches %s at %s refuses it: %v (init said %q)", role, address, err, said)
			}
		}
		if cert.VerifyHostname("10.0.0.3") == nil {
			t.Error("it holds for an address of nobody")
		}
	}
}
