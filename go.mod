module mlx5d

go 1.26.8

require (
	github.com/google/gopacket v1.1.19 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
