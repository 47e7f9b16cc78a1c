"""The towns that the office serves and the roads between them."""

DEPOT = "Aldermoor"

ROADS = {
    "Aldermoor": ["Brackley", "Corriton", "Dunwold"],
    "Brackley": ["Aldermoor", "Elmstead", "Farnhope"],
    "Corriton": ["Aldermoor", "Farnhope", "Glenfield"],
    "Dunwold": ["Aldermoor", "Hartsmere"],
    "Elmstead": ["Brackley", "Inverlay"],
    "Farnhope": ["Brackley", "Corriton", "Inverlay"],
    "Glenfield": ["Corriton", "Kestrow"],
    "Hartsmere": ["Dunwold", "Kestrow", "Lannbury"],
    "Inverlay": ["Elmstead", "Farnhope"],
    "Kestrow": ["Glenfield", "Hartsmere"],
    "Lannbury": ["Hartsmere"],
}

TOWNS = list(ROADS)
