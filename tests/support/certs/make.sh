#!/bin/sh
# Makes the certificates of the TLS tests anew, here: authorities that know nothing of each other, and what they signed.
# They are committed, so the tests need no openssl; nothing outside the tests may trust them.
set -eu
cd "$(dirname "$0")"

DAYS=36500 # a test that fails in some years for its certificate alone helps nobody

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1-key.pem"; }

authority() {
    new_key "$1"
    openssl req -x509 -new -key "$1-key.pem" -subj "/CN=$1 of the Tallygate tests" -days $DAYS -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
}

# NAME AUTHORITY USAGE SUBJECT_ALT_NAME
signed() {
    new_key "$1"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2-key.pem" -CAcreateserial -days $DAYS -extfile "$1.ext" \
        -out "$1.pem"
    rm "$1.csr" "$1.ext"
}

# NAME AUTHORITY FROM TO: good for everything, between these times.
dated() {
    new_key "$1"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    mkdir "$1.ca" && : > "$1.ca/index.txt"
    cat > "$1.ca/config" <<-END
	[ca]
	default_ca = d
	[d]
	database = $1.ca/index.txt
	new_certs_dir = $1.ca
	rand_serial = yes
	default_md = sha256
	policy = p
	x509_extensions = x
	[p]
	commonName = supplied
	[x]
	basicConstraints = CA:FALSE
	extendedKeyUsage = serverAuth, clientAuth
	subjectAltName = IP:127.0.0.1, URI:spiffe://td.example/ns/edge/sa/envoy
	END
    openssl ca -batch -notext -config "$1.ca/config" -cert "$2.pem" -keyfile "$2-key.pem" \
        -startdate "$3" -enddate "$4" -in "$1.csr" -out "$1.pem"
    rm -r "$1.csr" "$1.ca"
}

authority ca
authority other-ca
signed loopback ca serverAuth IP:127.0.0.1
signed named ca serverAuth DNS:redis.example
signed client ca clientAuth DNS:tallygate.example
signed stranger other-ca clientAuth DNS:tallygate.example
# A mesh: one authority for all its workloads, whatever they are.
authority mesh
signed sidecar mesh serverAuth IP:127.0.0.1
signed sidecar-renewed mesh serverAuth IP:127.0.0.1
signed envoy mesh clientAuth URI:spiffe://td.example/ns/edge/sa/envoy
signed neighbour mesh clientAuth URI:spiffe://td.example/ns/shop/sa/web
signed two-ids mesh clientAuth URI:spiffe://td.example/ns/edge/sa/envoy,URI:spiffe://td.example/ns/shop/sa/web
dated expired mesh 20210101000000Z 20210304000000Z

# Workloads with SPIFFE IDs. One authority may know several trust domains, and sign a certificate with names of both.
authority workloads
signed workload-a workloads clientAuth URI:spiffe://td.example/ns/shop/sa/a
signed workload-b workloads clientAuth URI:spiffe://td.example/ns/shop/sa/b
signed workload-elsewhere workloads clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/a
signed workload-both workloads clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/a,URI:spiffe://td.example/ns/shop/sa/a
# As workload-a calls itself, but by an authority that nobody trusts.
authority forger
signed workload-forged forger clientAuth URI:spiffe://td.example/ns/shop/sa/a

# Workloads of an Istio mesh, and one of a mesh that trusts the same authority under another name.
authority istio
signed mesh-orders istio serverAuth URI:spiffe://cluster.local/ns/orders/sa/orders
signed mesh-shop istio clientAuth URI:spiffe://cluster.local/ns/shop/sa/web
signed mesh-jobs istio clientAuth URI:spiffe://cluster.local/ns/jobs/sa/batch
signed mesh-foreign istio clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/web

# Keys of other kinds, an authority that signs through another one, and a certificate whose time has not come.
new_key_of() { openssl genpkey -quiet -algorithm "$2" -out "$1-key.pem"; }

# NAME KIND: a client and a server for its address, by `edge`, with a key of that kind.
of_kind() {
    new_key_of "$1" "$2"
    sign "$1" edge "extendedKeyUsage=serverAuth,clientAuth" "subjectAltName=IP:127.0.0.1,URI:spiffe://edge.example/$1"
}

# NAME AUTHORITY EXTENSION...: for the key that is there.
sign() {
    name=$1 by=$2
    shift 2
    openssl req -new -key "$name-key.pem" -subj "/CN=$name" -out "$name.csr"
    printf '%s\n' "$@" > "$name.ext"
    openssl x509 -req -in "$name.csr" -CA "$by.pem" -CAkey "$by-key.pem" -CAcreateserial -days $DAYS \
        -extfile "$name.ext" -out "$name.pem"
    rm "$name.csr" "$name.ext"
}

authority edge
of_kind edge-rsa RSA
of_kind edge-ed25519 ED25519
new_key issuing
sign issuing edge basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign
new_key edge-issued
sign edge-issued issuing extendedKeyUsage=serverAuth,clientAuth \
    "subjectAltName=IP:127.0.0.1,URI:spiffe://edge.example/issued"
dated early edge 21200101000000Z 21250101000000Z
openssl pkey -in edge-ed25519-key.pem -aes256 -passout pass:unused -out edge-locked-key.pem
# What is signed is signed.
rm -f ca-key.pem other-ca-key.pem mesh-key.pem workloads-key.pem forger-key.pem istio-key.pem edge-key.pem issuing-key.pem ./*.srl
