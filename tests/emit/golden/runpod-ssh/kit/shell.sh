# Written by firstlight 0.1.0: read by shells, so that they have the environment.
case ":$PATH:" in
    *:/opt/firstlight/env/bin:*) ;;
    *) PATH=/opt/firstlight/env/bin:"$PATH" && export PATH ;;
esac
