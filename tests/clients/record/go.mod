module thalweg/clients/record

go 1.26.0
