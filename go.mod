module hsx

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/sbinet/npyio v0.6.0
)

require gonum.org/v1/gonum v0.17.0 // indirect
