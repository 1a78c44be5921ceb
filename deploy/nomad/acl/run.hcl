# What the workers of one run ask: whether their allocation is still the one that counts.
#   nomad acl policy apply temper-run deploy/nomad/acl/run.hcl
#   nomad acl token create -name temper-run -policy temper-run
namespace "default" {
  capabilities = ["read-job"]
}
