# Whoever only looks: `temper cluster status`. It reads no secret, and no log, which may
# show more than a person should see.
namespace "default" {
  policy = "read"
}

agent {
  policy = "read"
}

node {
  policy = "read"
}

node_pool "*" {
  policy = "read"
}
