from legato.cli import main

main()
